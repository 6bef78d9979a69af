// the frame comes next

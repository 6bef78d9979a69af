-- What became of the work is judged once more: before, the newest commit with the lines was named in place of the one
-- that brought them, and work that was reworked or committed in part could be called dropped or reverted.
update outcomes set commit_id = '' where outcome in ('committed', 'landed');
update outcomes set outcome = 'tried', commit_id = '' where outcome in ('dropped', 'reverted');

"""The model services that can refine a draft."""

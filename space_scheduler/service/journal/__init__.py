"""What is on disk and read from it: the journal, its file, its rows as values, and the state recovered from them."""

"""What the verbs share: options, words for people, what is written and read beside a verb."""

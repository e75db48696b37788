"""Settings: YAML in, validated structures out; an error names the file and the key's path."""

"""What a file with a forest of trees says of itself: its format, its outputs, its features. Pure parsers over both ends of the file."""

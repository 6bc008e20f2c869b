"""What the API server serves and which fields it keeps."""

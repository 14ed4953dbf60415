"""What reaches below the public face of urllib3, requests and botocore, fenced in with the reason. Knows no store."""

"""The schemas of LMI and TGI over HTTP."""

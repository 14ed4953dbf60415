"""The schemas of LMI, of TGI and of OpenAI over HTTP, in front of language models."""

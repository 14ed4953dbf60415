"""The verb `models`: what journal, Triton, folder and cache say of each model (`view`), and how that looks (`text`)."""

"""What generates: the local model through llama.cpp, remote models by HTTP, and the scripted one. Behind the broker alone.

One file per kind of model, each a plug behind `models.pool`. The formats in which remote providers are asked are in `formats`.
"""

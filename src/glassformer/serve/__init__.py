"""Classifiers over HTTP, and a page to try them on: bounded by default, answers as offline"""

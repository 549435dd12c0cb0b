"""Trained classifiers as folders for other programs: checked, or not written"""

"""Kalé, Kumar & DeSouza 2002: malleable jobs under equipartition against traditional ones under first fit."""

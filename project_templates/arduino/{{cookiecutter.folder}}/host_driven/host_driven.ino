// Arduino requires a file with this name in the sketch's folder; the sketch is main.cpp.

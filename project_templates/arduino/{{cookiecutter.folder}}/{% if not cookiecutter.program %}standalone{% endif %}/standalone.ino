// Arduino wants a file of this name in the sketch's folder; the sketch is main.cpp.

// Package dormouse is the vocabulary of the runtime: the nouns that every other package
// uses. It holds types, validation and JSON; it imports the standard library only and
// has no I/O, no goroutines, no clock and no randomness.
package dormouse

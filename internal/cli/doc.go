// Package cli has what the commands of trimtab and of its plugin for kubectl share: the flag -o, how an answer is
// printed for people and for programs, and the version of the program.
package cli

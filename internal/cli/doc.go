// Package cli has what the commands of trimtab and of its plugin for kubectl share: the flag -o, the output of an
// answer as text, JSON or YAML, and the version of the program.
package cli

// Package cli has the code that the commands of trimtab and of its kubectl plugin share: the flag -o, the output of
// answers as text, JSON or YAML, the errors about arguments, and the version of the program.
package cli

// Package statefile reads and writes the agent's state files. It replaces files atomically, appends lines to
// files, and checks the owner, the mode and the signature of a file before it is used. It does not interpret
// their content. All file system calls use FS, so that tests can make each of them fail.
package statefile

// Package statefile reads and writes the agent's state files. It replaces files atomically, and appends lines to files.
// It checks the owner, the mode and the signature of files before the agent uses them. It does not interpret the
// content of files. All file system calls use the interface FS, so that tests can make each call fail.
package statefile

// Package statefile owns the files that an agent keeps on disk: how one is replaced
// whole, how lines are added to one, and whether an existing one is trusted by its
// owner, its mode and a code. It knows nothing of their content. All calls to the
// file system go through FS, so that tests can make each of them fail.
package statefile

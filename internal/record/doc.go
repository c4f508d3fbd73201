// Package record owns what is stored about containers outside of the process: the signed record
// that a container carries, and the checkpoint of later changes. lifecycle.Record declares the
// fields of both. The package decides nothing.
package record

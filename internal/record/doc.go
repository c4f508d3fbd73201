// Package record owns what is kept of containers outside of the process: the signed
// record that a container carries, and the checkpoint of later changes. The fields
// of both are declared once, in lifecycle.Record. It decides nothing.
package record

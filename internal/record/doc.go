// Package record owns what is kept of containers outside of the process: the record
// that is stamped into a container, signed, and the checkpoint of what came after.
// What both say is declared once, in lifecycle.Record. It decides nothing.
package record

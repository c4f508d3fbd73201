// Package record stores the state of containers outside of the agent's process. A signed record is an annotation
// of its container. The checkpoint file has later changes, and the records of containers without this annotation.
// lifecycle.Record has the fields of a record. The package makes no decisions.
package record

// Package record stores the state of containers outside of the agent's process. A signed record is an annotation
// or label of its container. The checkpoint file has later changes and containers without a record.
// Both consist of lifecycle.Record. The package makes no decisions.
package record

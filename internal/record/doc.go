// Package record stores the state of containers outside of the agent's process. The state of one container is a record
// (lifecycle.Record). The agent adds the signed record to a new container as an annotation, which the runtime stores.
// The agent's checkpoint file has later changes, and the records of containers without this annotation. The package
// makes no decisions.
package record

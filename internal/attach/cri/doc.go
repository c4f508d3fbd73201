// Package cri attaches Trimtab between a kubelet and a CRI runtime. It serves a socket of its own, and relays every
// connection to the runtime frame by frame. It holds nine calls about pods and containers until it has handled them: it
// converts the requests to lifecycle types and passes them to the conductor. It then forwards the requests, unchanged
// or with decided values.
//
// The package decides nothing. It stores the pods and containers that the runtime reported, because most calls have
// only the id of a pod or container. It drops a pod or container only after the runtime has confirmed its end. Until
// the agent knows the running containers, the package forwards every call unchanged. But if failurePolicy.agent is
// Fail, it refuses CreateContainer.
package cri

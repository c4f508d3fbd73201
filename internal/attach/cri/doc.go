// Package cri attaches Trimtab between a kubelet and a CRI runtime. It serves a socket of its own, relays every
// connection to the runtime frame by frame, and holds nine calls about pods and containers. It converts the
// requests of these calls to lifecycle types and passes them to the conductor. It then sends them on, unchanged or
// with decided values.
//
// The package decides nothing. It stores the pods and containers that the runtime reported, because most calls do
// not describe them. It drops them only after the runtime has confirmed their end. Until the agent knows the
// running containers, it forwards every call unchanged, or refuses CreateContainer if failurePolicy.agent is fail.
package cri

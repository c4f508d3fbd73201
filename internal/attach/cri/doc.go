// Package cri attaches Trimtab between a kubelet and a CRI runtime. It serves a socket
// of its own, relays every connection to the runtime frame by frame, and holds nine
// calls about pods and containers. It converts their requests to lifecycle types, has
// them decided, and sends them on, unchanged or with decided values.
//
// It decides nothing. It stores the pods and containers that the runtime reported,
// because its calls carry less than the conductor needs. It drops them only after the
// runtime has confirmed their end. Until the running containers are known, every call
// passes.
package cri

// Package cri attaches Trimtab between a kubelet and a CRI runtime. It serves a
// socket of its own, relays every connection to the runtime's frame by frame,
// and holds nine calls about pods and containers: their requests are translated
// into lifecycle words, decided, and go on as they came or with decided values
// put in.
//
// It decides nothing. It keeps of pods and containers what the runtime reported,
// since its own calls carry less than the conductor needs, and drops that only
// when the runtime has confirmed the end. Where it does not know how things
// stand, every call passes.
package cri

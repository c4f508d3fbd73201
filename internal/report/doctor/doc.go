// Package doctor looks at a node from outside and says what keeps Trimtab from
// doing its work: of the runtime, the kubelet, the kernel and the agent itself.
// It only reads, needs no root, and tells apart what is wrong from what it
// could not see.
package doctor

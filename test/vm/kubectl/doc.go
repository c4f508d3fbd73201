// Package kubectl tests `kubectl trimtab` with a real API server and two simulated nodes. On each node, the real agent
// runs on the embedded runtime. A server of the tests takes the kubelet's place for pods/exec, and runs the program
// trimtab on this host.
package kubectl

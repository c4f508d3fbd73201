// Package install is suite C of the tests in virtual machines. It installs Trimtab as an administrator does, with the
// literal commands of docs/cluster.md. etcd, the API server, the controllers and the scheduler run on this machine. The
// nodes with kubelet and containerd are virtual machines.
package install

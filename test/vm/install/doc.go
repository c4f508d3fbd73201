// Package install is suite C: Trimtab as an administrator installs it. etcd, the API server, the
// controllers and the scheduler run on this machine, the nodes with kubelet and containerd are guests, and
// the commands of docs/cluster.md are run literally.
package install

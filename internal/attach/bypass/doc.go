// Package bypass works beside the runtime. It asks the CRI for pods and containers, watches the kubelet's cgroups,
// and turns both into lifecycle events. No request passes through it, so it cannot put values into an answer.
// Instead the keeper writes them to the kernel as soon as a container's cgroup exists. The package itself never
// writes a kernel file.
package bypass

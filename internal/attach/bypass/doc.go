// Package bypass attaches the agent beside the runtime. It asks the CRI for pods and containers, watches the kubelet's
// cgroups, and makes lifecycle events from both sources. The kubelet's requests do not pass through the package, so it
// cannot change them. Instead, package keeper writes the values to the kernel as soon as a container's cgroup exists.
// Package bypass itself never writes a kernel file.
package bypass

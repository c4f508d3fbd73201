// Package kernel simulates parts of the kernel in memory, for simulations and tests. Cgroups has cgroup trees of
// version 1 and 2 with partitions, Resctrl a resctrl tree, Cookies core scheduling, and CPUFiles the cpufreq and
// cpuidle files. They accept and refuse the same writes as real kernels, and their files have the same texts.
//
// test/kernel/script compares Cgroups with recordings of real kernels. Resctrl, Cookies and CPUFiles follow the
// kernel's documentation and are not compared with a real kernel.
package kernel

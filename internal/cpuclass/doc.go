// Package cpuclass writes the values of CPU classes to the kernel's cpufreq and cpuidle files below
// /sys/devices/system/cpu. It saves the original values, and restores them when a CPU has no class any more. If another
// program changes a value that the package wrote, the package writes the value again. It does not choose the class of a
// CPU.
package cpuclass

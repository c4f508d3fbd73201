// Package cpuclass writes CPU classes to the kernel's cpufreq and cpuidle files below
// /sys/devices/system/cpu. It saves the original values, and writes again what other programs change.
// It restores the originals when a CPU has no class any more. It does not choose classes.
package cpuclass

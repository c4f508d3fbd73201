// Package bench compares Trimtab with NRI plugins that change nothing. The runtime side of the upstream NRI library
// runs in the process of the benchmark, and each plugin runs in its own process. The plugins get containers in turn.
// The benchmarks print times and ratios, and check none of them. See docs/benchmarks.md.
package bench

// Package bench measures Trimtab beside plugins that decide nothing: the
// upstream NRI runtime library in this process, each plugin in another one,
// calls interleaved. It prints times and ratios and asserts none of them. See
// docs/benchmarks.md.
package bench

// Package bench compares Trimtab with plugins that decide nothing. The upstream NRI runtime library runs in this
// process, each plugin in another one, and calls are interleaved. It prints times and ratios and asserts none of them.
// See docs/benchmarks.md.
package bench

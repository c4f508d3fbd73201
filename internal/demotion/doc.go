// Package demotion decides how much memory of each container the kernel is asked to move from fast to slow memory
// nodes. It skips containers whose pages the kernel would drop or swap. It reads files of the node and of cgroups. It
// writes no files, and chooses no memory nodes.
//
// If demotion is enabled in the kernel, a write to memory.reclaim (Linux 5.19) makes the kernel move pages to slower
// memory nodes. If pages are on a memory node without a slower node, the kernel drops page cache and swaps instead. So
// the package makes requests only for containers that the kernel cannot harm in this way (mm/vmscan.c of 6.16 to 6.18:
// get_scan_count, can_reclaim_anon_pages, can_demote).
package demotion

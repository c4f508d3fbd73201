// Package demotion decides how much memory of each container the kernel is asked to move from fast to slow memory
// nodes. It leaves out containers of which the kernel would drop or swap pages. It reads files of the node and of
// cgroups. It writes no files, and chooses no memory nodes.
//
// If demotion is on, the kernel moves pages after a write to memory.reclaim (Linux 5.19). On nodes without a demotion
// target, the kernel drops page cache and swaps instead. So the package asks only for containers without such pages
// (mm/vmscan.c of 6.16 to 6.18: get_scan_count, can_reclaim_anon_pages, can_demote).
package demotion

// Package choose is the only allocator of CPUs. It picks n CPUs of a set by their place on the
// machine and by preferences, and reports what decided. The same request always gives the same
// answer. It knows neither pods nor pools nor owners; callers narrow the set that it chooses
// from.
//
// A choice has two steps. First, preferences narrow the set, one after another; a preference is
// skipped if it would leave too few CPUs. Then the machine is searched from the outside in. At
// each level the best group that has enough CPUs is entered, by the ranking of rank.go. If no
// group has enough, as few groups as possible are filled, nearest first.
package choose

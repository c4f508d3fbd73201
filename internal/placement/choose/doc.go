// Package choose is the one allocator of CPUs: it picks n out of a set by where
// they sit on the machine and by what is preferred, always the same for the
// same question, and says what decided. It knows no pods, no pools and no
// owners; those who do narrow the set they ask it to choose from.
//
// A choice has two steps. Preferences first narrow the set, one after another,
// each kept only where what is left still holds what is wanted. Then the
// machine is walked from the outside in: at each level the group that holds
// everything and is best by the ranking of rank.go is entered; where none holds
// everything, as few groups as possible are filled, nearest first.
package choose

"""The members of a gang, and the gate before their first Binding: it opens when `minCount` members have what they need."""

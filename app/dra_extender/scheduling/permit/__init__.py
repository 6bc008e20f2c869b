"""The members of a gang, and the permit before their first Binding: it is given when `minCount` members have their devices."""

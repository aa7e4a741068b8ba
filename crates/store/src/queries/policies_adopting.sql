-- policies_adopting: the policy of a namespace that new ones get as their parent.
SELECT {policies as read} FROM policies
WHERE namespace = $1 AND adopts
